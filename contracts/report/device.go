package report

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
)

// Device is a device on which ranks computed, and what its management library told of it
// meanwhile. What that counts a computation need not notice: it is a violation by itself.
type Device struct {
	Host    string `json:"host,omitempty"`
	Process int    `json:"process,omitempty"` // that used it, from 1; 0 is this one
	Device  string `json:"device"`            // index, name, UUID and PCI address
	// Monitored says that somebody looked, and Not what he was not told; where nobody
	// looked, why.
	Monitored bool     `json:"monitored"`
	Not       string   `json:"not_monitored,omitempty"`
	Findings  []string `json:"findings,omitempty"` // "ecc: 1 uncorrected ECC errors"
}

// String is the device with where it is.
func (d *Device) String() string {
	s := d.Device
	if d.Host != "" {
		s += " of host " + d.Host
	}
	if d.Process > 0 {
		s += fmt.Sprintf(" in agent %d", d.Process-1)
	}
	return s
}

// state says how the device was looked at; what was found stands elsewhere.
func (d *Device) state() string {
	switch {
	case !d.Monitored:
		return "not monitored: " + d.Not
	case len(d.Findings) > 0:
		return fmt.Sprintf("monitored: %s", plural(len(d.Findings), "finding"))
	case d.Not != "":
		return "monitored, nothing found, but " + d.Not
	}
	return "monitored, nothing found"
}

// Watch adds devices and what was seen of them.
func (r *Report) Watch(devices ...Device) {
	r.Devices = append(r.Devices, devices...)
	r.settle()
}

// faulty are the devices with findings.
func (r *Report) faulty() (out []Device) {
	for _, d := range r.Devices {
		if len(d.Findings) > 0 {
			out = append(out, d)
		}
	}
	return out
}

// mostDevices is how many devices the text lists that nothing was found of.
const mostDevices = 16

// monitored writes the devices, and how each was looked at.
func (t *textWriter) monitored(r *Report) {
	for i := range r.Devices {
		if d := &r.Devices[i]; i < mostDevices || len(d.Findings) > 0 {
			t.linef("  device     %s: %s", d.String(), d.state())
		}
	}
	if n := len(r.Devices) - mostDevices; n > 0 {
		t.linef("  device     and %d more; --format json lists all", n)
	}
}

// devices writes what was found of devices.
func (t *textWriter) devices(r *Report) {
	faulty := r.faulty()
	if len(faulty) == 0 {
		return
	}
	t.linef("")
	t.linef("%s  devices  What their management library reported while ranks computed", t.verdict(contract.Violated, t.column()))
	for _, d := range faulty {
		for _, f := range d.Findings {
			t.linef("        %s: %s", d.String(), f)
		}
	}
}

// devices is a suite of the devices: one that nobody looked at is skipped, not passed.
func devices(r *Report) junitSuite {
	s := junitSuite{Name: "devices" + r.Environment.mark(), Tests: len(r.Devices), Properties: properties(&r.Environment)}
	for i := range r.Devices {
		d := &r.Devices[i]
		c := junitCase{Class: "devices", Name: d.String() + r.Environment.mark()}
		switch {
		case len(d.Findings) > 0:
			s.Failures++
			c.Failure = &junitReason{Type: r.Word(contract.Violated), Message: d.Findings[0], Text: fmt.Sprintf("%q", d.Findings)}
		case !d.Monitored:
			s.Skipped++
			c.Skipped = &junitSkipped{Message: d.state()}
		}
		s.Cases = append(s.Cases, c)
	}
	return s
}
