package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// Extension ends the name of a rank's history file.
const Extension = ".ndjson"

// ErrMemory is of histories that are larger than what memory there is for them.
var ErrMemory = errors.New("the histories need more memory than there is for them")

// eventBytes is no less than what an event takes in memory without what it refers to.
const eventBytes = 512

// maxLine bounds one line of a history file that is read: 256 MiB.
const maxLine = 1 << 28

// Write writes the log as NDJSON: the header, then one event a line.
func (l *Log) Write(w io.Writer) error {
	enc := newEncoder(w)
	if err := enc.Encode(l.Header); err != nil {
		return err
	}
	for _, e := range l.Events() {
		if err := enc.event(e); err != nil {
			return err
		}
	}
	return nil
}

// Save writes the log to <dir>/<rank>.ndjson, complete or not at all.
func (l *Log) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return WriteFile(l.path(dir), l.Write)
}

// path is the log's file in a directory.
func (l *Log) path(dir string) string {
	return filepath.Join(dir, fmt.Sprintf("%04d%s", l.Header.Rank, Extension))
}

// WriteFile makes a file by a temporary file, fsync and rename, so that no
// reader ever sees half of it.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-"+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	buf := bufio.NewWriter(f)
	if err = write(buf); err != nil {
		return err
	}
	if err = buf.Flush(); err != nil {
		return err
	}
	if err = f.Chmod(0o644); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Read reads what Write wrote; name is used in errors, which give the line. A line that
// repeats an earlier one, of what happens once, is left out: History.Damage says so. So is
// a last line that ends too soon where no event says that the run has ended: its writer
// was killed.
func Read(r io.Reader, name string) (*Log, error) {
	room := int64(math.MaxInt64)
	return read(r, name, maxLine, &room)
}

// Receive is Read of what comes from the process that recorded it. Nothing that is
// there twice was repeated on the way: all is kept.
func Receive(r io.Reader, name string) (*Log, error) {
	room := int64(math.MaxInt64)
	return receive(r, name, maxLine, &room, nil)
}

// read is Read with a bound on the bytes of a line, and one on those that all of it
// takes in memory; what is left of that comes back.
func read(r io.Reader, name string, maxLine int, room *int64) (*Log, error) {
	return receive(r, name, maxLine, room, newDoubled())
}

// receive is read where twice, unless nil, finds lines that are repeated.
func receive(r io.Reader, name string, maxLine int, room *int64, twice *doubled) (*Log, error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	l, lines := &Log{}, newLines()
	for n := 1; s.Scan(); n++ {
		line := bytes.TrimSpace(s.Bytes())
		if len(line) == 0 {
			continue
		}
		if n == 1 {
			if err := l.Header.parse(line); err != nil {
				return nil, fmt.Errorf("%s:1: %w", name, err)
			}
			continue
		}
		var e Event
		if err := lines.parse(line, &e); errors.Is(err, io.ErrUnexpectedEOF) && twice != nil && !l.ended() && !s.Scan() {
			break // whoever wrote the file was killed meanwhile: it is cut off
		} else if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if err := l.Header.Admits(&e); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if twice != nil && twice.is(&e, line, name, n) {
			continue
		}
		// What an event refers to is no longer than its line; a slice that grows is
		// there twice for a while.
		if *room -= 2*eventBytes + int64(len(line)); *room < 0 {
			return nil, fmt.Errorf("%s:%d: %w", name, n, ErrMemory)
		}
		l.events = append(l.events, e)
	}
	if twice != nil {
		l.damage = twice.String()
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if l.Header.Schema == "" {
		return nil, fmt.Errorf("%s: empty", name)
	}
	return l, nil
}

func (l *Log) ended() bool {
	return slices.ContainsFunc(l.events, func(e Event) bool { return e.Kind == KindEnd })
}

// parse reads a header. The schema comes first: of another one nothing else is
// known.
func (h *Header) parse(line []byte) error {
	var s struct{ Schema string }
	if err := json.Unmarshal(line, &s); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	if s.Schema == bareSchema {
		return fmt.Errorf("schema %q, in which spec is not yet {\"lockstep\": {...}}: want %q", s.Schema, Schema)
	}
	if s.Schema != Schema {
		return fmt.Errorf("schema %q: want %q", s.Schema, Schema)
	}
	if err := newLines().parse(line, h); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	return h.Validate()
}

// lines parses JSON values, one a line, and refuses fields that they do not
// have: evidence under a misspelt name would be lost without a word.
type lines struct {
	line bytes.Reader
	dec  *json.Decoder // of line, whatever that holds at the time
	read int64         // bytes of the lines before
}

func newLines() *lines {
	l := &lines{}
	l.dec = json.NewDecoder(&l.line)
	l.dec.DisallowUnknownFields()
	return l
}

// parse reads the one value of a line. After an error l is of no more use.
func (l *lines) parse(line []byte, v any) error {
	l.line.Reset(line)
	if err := l.dec.Decode(v); err != nil {
		return err
	}
	at := l.dec.InputOffset() - l.read
	l.read += int64(len(line))
	if rest := line[at:]; len(rest) > 0 {
		return fmt.Errorf("%.20q after the end of the value", rest)
	}
	return nil
}

// bareSchema is the format before Spec was one of several.
const bareSchema = "lockstep/history/v1"
