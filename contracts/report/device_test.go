package report

import (
	"bytes"
	"encoding/xml"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace/tracetest"
)

// onDevices is a report in which all contracts hold, on devices.
func onDevices(devices ...Device) *Report {
	r := New(sample().Environment, sample().Contracts[2:])
	r.Watch(devices...)
	return r
}

// TestDeviceFindings: what happened to a device is a violation, though all contracts hold,
// in every form and with which device it was; a device that nobody looked at is no finding
// and says so, and is no test that passed.
func TestDeviceFindings(t *testing.T) {
	well := Device{Host: "n1", Device: "device 0 (H100, GPU-0, 0000:1b:00.0)", Monitored: true}
	ill := Device{Host: "n2", Process: 3, Device: "device 1 (H100, GPU-1, 0000:2b:00.0)", Monitored: true, Findings: []string{"ecc: 1 uncorrected ECC errors", "xid: Xid 79 was reported"}}
	unseen := Device{Host: "n1", Device: "device 2 (H100, GPU-2, 0000:3b:00.0)", Not: "no library"}
	partly := Device{Device: "device 3 (H100, GPU-3, 0000:4b:00.0)", Monitored: true, Not: "it does not tell events"}
	for name, c := range map[string]struct {
		devices          []Device
		verdict          contract.Verdict
		failed, skipped  int
		text, never, xml []string
	}{
		"well":   {[]Device{well}, contract.Held, 0, 0, []string{"device 0 (H100, GPU-0, 0000:1b:00.0) of host n1: monitored, nothing found"}, []string{"not monitored"}, nil},
		"unseen": {[]Device{unseen}, contract.Held, 0, 1, []string{"device 2 (H100, GPU-2, 0000:3b:00.0) of host n1: not monitored: no library"}, []string{"monitored, nothing"}, []string{`<skipped message="not monitored: no library">`}},
		"partly": {[]Device{partly}, contract.Held, 0, 0, []string{"monitored, nothing found, but it does not tell events"}, nil, nil},
		"ill": {[]Device{well, ill, unseen}, contract.Violated, 1, 1, []string{
			"violated      devices",
			"device 1 (H100, GPU-1, 0000:2b:00.0) of host n2 in agent 2: ecc: 1 uncorrected ECC errors",
			"device 1 (H100, GPU-1, 0000:2b:00.0) of host n2 in agent 2: xid: Xid 79 was reported",
			"violated: 1 contract, 1 clause: 1 held", "Next: look at what is said of devices"},
			[]string{"Nothing to do"}, []string{`name="device 1 (H100, GPU-1, 0000:2b:00.0) of host n2 in agent 2"`}},
	} {
		t.Run(name, func(t *testing.T) {
			r := onDevices(c.devices...)
			if r.Verdict != c.verdict {
				t.Errorf("%s, want %s", r.Verdict, c.verdict)
			}
			var text, doc, junit bytes.Buffer
			for _, err := range []error{Text(&text, r, TextOptions{}), JSON(&doc, r), JUnit(&junit, r)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range c.text {
				if !strings.Contains(text.String(), s) {
					t.Errorf("no %q in\n%s", s, text.String())
				}
			}
			for _, s := range c.never {
				if strings.Contains(text.String(), s) {
					t.Errorf("%q in\n%s", s, text.String())
				}
			}
			x, err := jsonschema.UnmarshalJSON(&doc)
			if err != nil {
				t.Fatal(err)
			}
			if err := tracetest.Compile(t, JSONSchema()).Validate(x); err != nil {
				t.Error(err)
			}
			if n := len(x.(map[string]any)["devices"].([]any)); n != len(c.devices) {
				t.Errorf("%d devices in JSON", n)
			}
			for _, s := range c.xml {
				if !strings.Contains(junit.String(), s) {
					t.Errorf("no %q in\n%s", s, junit.String())
				}
			}
			var suites junitSuites
			if err := xml.Unmarshal(junit.Bytes(), &suites); err != nil {
				t.Fatal(err)
			}
			of := suites.Suites[len(suites.Suites)-1]
			if of.Failures != c.failed || of.Skipped != c.skipped || len(of.Cases) != len(c.devices) || suites.Failures != c.failed || suites.Tests != 1+len(c.devices) {
				t.Errorf("%+v", of)
			}
		})
	}
}

// TestSimulatedDevicesAreNotMonitored: of a simulated device, too, nothing is a pass.
func TestSimulatedDevicesAreNotMonitored(t *testing.T) {
	r := onDevices(Device{Device: "simulated device 0 (x, SIM-0)", Not: "a simulated device has no management library"})
	r.Environment.Backend = "cuda (simulated: sim:1)"
	var junit bytes.Buffer
	if err := JUnit(&junit, r); err != nil {
		t.Fatal(err)
	}
	held := []contract.Verdict{contract.Held}
	markedText(t, r, true, held)
	markedJSON(t, r, true, held)
	markedJUnit(t, r, true)
	if s := junit.String(); !strings.Contains(s, `name="devices (simulated)"`) || strings.Count(s, "<skipped") != 1 {
		t.Errorf("%s", s)
	}
}

// TestFindingsNameTheirDevice: host and device of a finding are in every form.
func TestFindingsNameTheirDevice(t *testing.T) {
	r := sample()
	f := &r.Contracts[0].Clauses[1].Findings[0]
	f.Host, f.Device = "node7", "device 1 (H100, GPU-1, 0000:2b:00.0)"
	r.Explain()
	var text, doc, junit bytes.Buffer
	for _, err := range []error{Text(&text, r, TextOptions{}), JSON(&doc, r), JUnit(&junit, r)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const says = "device 1 (H100, GPU-1, 0000:2b:00.0) of host node7"
	if strings.Count(text.String(), says) != 2 { // of the finding, and of the cause
		t.Errorf("%s", text.String())
	}
	if strings.Count(doc.String(), `"device": "device 1 (H100, GPU-1, 0000:2b:00.0)"`) != 2 || !strings.Contains(doc.String(), `"host": "node7"`) {
		t.Errorf("%s", doc.String())
	}
	if strings.Count(junit.String(), says) != 3+2 { // the cause of three suites; message and text of the failure
		t.Errorf("%s", junit.String())
	}
	f.Device = ""
	if w := "host node7"; where(f) != w {
		t.Errorf("%q", where(f))
	}
}
