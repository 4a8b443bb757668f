//go:build !linux

package turns

import "errors"

// Others would say how busy other programs keep the machine.
func Others() (share func() (float64, error), err error) {
	return nil, errors.New("how busy others keep the machine is known on Linux alone")
}
