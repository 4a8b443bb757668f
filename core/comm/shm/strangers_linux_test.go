package shm

import (
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
)

// listens is a rank on a host of a name.
func listens(t *testing.T, host string) engine.Way {
	t.Helper()
	w, err := ListenOn(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Listener.Close() })
	return w
}

// What a peer says where it listens is dialed only where that is a rank of this host.
func TestAddressesOfPeers(t *testing.T) {
	here, there := listens(t, "here"), listens(t, "there")
	name, host, _ := strings.Cut(here.Addr, "/")
	for addr, says := range map[string]string{
		listens(t, "here").Addr:            "",
		there.Addr:                         "is on another host",
		name + "/another start of it here": "is on another host",
		name:                               "is on another host",
		"":                                 "is on another host",
		"@dbus-1/" + host:                  "is on another host",
		"/run/systemd/private/" + host:     "is on another host",
		prefix + strings.Repeat("x", 200) + "/" + host: "invalid argument",
		prefix + "NOBODY/" + host:                      "connection refused",
	} {
		conn, err := here.Dial(t.Context(), addr)
		if err == nil {
			conn.Close()
		}
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", addr, err, says)
		}
	}
}

// asAnother does something as another user, which only root can be: sockets are of the
// user that their thread is.
func asAnother(do func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends with this goroutine
		const nobody = 65534
		if _, _, no := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); no != 0 {
			err = no
			return
		}
		err = do()
	}()
	<-done
	return err
}

// A process of another user is not let in and not gone to, and keeps nobody out.
func TestOtherUsers(t *testing.T) {
	w := listens(t, "")
	name, host, _ := strings.Cut(w.Addr, "/")
	if os.Geteuid() == 0 {
		var theirs net.Listener
		err := asAnother(func() error {
			conn, err := net.Dial("unix", name)
			if err != nil {
				return err
			}
			t.Cleanup(func() { conn.Close() })
			theirs, err = net.Listen("unix", name+"-theirs")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		if _, err := w.Dial(t.Context(), name+"-theirs/"+host); err == nil || !strings.Contains(err.Error(), "a process of user 65534") {
			t.Errorf("a rank of another user: %v", err)
		}
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := w.Listener.Accept(); err == nil {
			accepted <- conn
		}
	}()
	own, err := w.Dial(t.Context(), w.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	let := <-accepted
	defer let.Close()
	if _, err := own.Write([]byte{7}); err != nil {
		t.Fatal(err)
	}
	if err := let.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := let.Read(b[:]); err != nil || b[0] != 7 {
		t.Errorf("who was let in is another one: %v", err)
	}
}
