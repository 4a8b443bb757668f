package procs

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// owner names the process that listens at a port, where this one may see it, by what it
// was started as: "process 4711 (python3)".
func owner(port int) string {
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		listening(table, port, sockets)
	}
	if len(sockets) == 0 {
		return ""
	}
	all, _ := filepath.Glob("/proc/[0-9]*/fd/*") // those of others cannot be read
	for _, fd := range all {
		to, err := os.Readlink(fd)
		if err != nil || !sockets[to] {
			continue
		}
		dir := filepath.Dir(filepath.Dir(fd))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may have ended
		name, _, _ := strings.Cut(string(line), "\x00")
		return fmt.Sprintf("process %s (%s)", filepath.Base(dir), filepath.Base(name))
	}
	return "a process of another user"
}

// listening adds the sockets of a table that listen at a port.
func listening(table string, port int, sockets map[string]bool) {
	f, err := os.Open(table)
	if err != nil {
		return
	}
	defer f.Close()
	const local, state, inode, listen = 1, 3, 9, "0A"
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) <= inode || fields[state] != listen {
			continue
		}
		_, hex, _ := strings.Cut(fields[local], ":")
		if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
			sockets["socket:["+fields[inode]+"]"] = true
		}
	}
}
