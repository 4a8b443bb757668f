package gpu

import (
	"fmt"
	"strings"
)

// Info says what a device is. It is plain data, for reports and findings.
type Info struct {
	Index     int    `json:"index"` // as the driver counts
	Name      string `json:"name"`
	UUID      string `json:"uuid"`          // "GPU-..." as nvidia-smi prints it; "SIM-..." of a simulated device
	PCI       string `json:"pci,omitempty"` // "0000:1b:00.0"; empty for a simulated device
	Major     int    `json:"major"`         // of the compute capability
	Minor     int    `json:"minor"`
	Memory    uint64 `json:"memory_bytes"`
	Driver    string `json:"driver"` // the version of CUDA that the driver supports: "12.4"
	Simulated bool   `json:"simulated,omitempty"`

	Multiprocessors int `json:"multiprocessors"`
	SharedMemory    int `json:"shared_memory_bytes"` // that a block may have, where its kernel asks for it
}

// String names the device in messages: "device 1 (NVIDIA H100 80GB HBM3, 0000:1b:00.0)".
func (i Info) String() string {
	kind, where := "device", i.PCI
	if i.Simulated {
		kind, where = "simulated device", fmt.Sprintf("sm_%d%d", i.Major, i.Minor)
	}
	return fmt.Sprintf("%s %d (%s, %s)", kind, i.Index, i.Name, where)
}

// PCIAddress writes the address of a PCI device as lspci -D does: CUDA, NVML and Linux
// differ in the digits of the domain and in case.
func PCIAddress(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	if domain, rest, ok := strings.Cut(s, ":"); ok && len(domain) == 8 && strings.HasPrefix(domain, "0000") {
		return domain[4:] + ":" + rest
	}
	return s
}

// UnavailableError says that the chosen devices cannot be used on this machine, as things
// are: there is no driver or no device, one is too old, or this program was built without
// CUDA. A command that was to use them could not run.
type UnavailableError struct {
	What string // what is the matter
	Hint string // what would help; may be empty
	Err  error  // the cause, where there is one
}

// Error says what is the matter and what would help.
func (e *UnavailableError) Error() string {
	s := "no CUDA device can be used: " + e.What
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap is the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// SettingError says which variable of the environment the simulator does not take, with
// its value and the rule. It is a mistake of who calls, where UnavailableError is none.
type SettingError struct{ What string }

// Error says it.
func (e *SettingError) Error() string { return e.What }

// NotBuilt is the error of a program that was built without the tag cuda.
func NotBuilt() error {
	return &UnavailableError{What: "this program was built without CUDA", Hint: "make build-cuda builds bin/verify and bin/train with it"}
}
