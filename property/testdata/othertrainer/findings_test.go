package othertrainer

import (
	"fmt"
	"strings"
)

// findings collects what a suite reports, instead of failing a test.
type findings []string

func (f *findings) Helper() {}

func (f *findings) Errorf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func (f findings) String() string { return strings.Join(f, "\n") }
