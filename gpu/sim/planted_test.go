//go:build sim

package sim_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// bugLines are the lines of each kernel of bugs.cu that are marked as its bug.
func bugLines(t *testing.T) map[string][]int {
	t.Helper()
	src, err := os.ReadFile("testdata/bugs.cu")
	if err != nil {
		t.Fatal(err)
	}
	lines, kernel := map[string][]int{}, ""
	entry := regexp.MustCompile(`^KERNEL (\w+)\(`)
	for i, l := range strings.Split(string(src), "\n") {
		if m := entry.FindStringSubmatch(l); m != nil {
			kernel = m[1]
		}
		if strings.HasSuffix(l, "// bug") {
			lines[kernel] = append(lines[kernel], i+1)
		}
	}
	return lines
}

// planted is a kernel of bugs.cu, what it does to whom, and what must be found.
type planted struct {
	kernel, class string
	code          int
	says          string // of what the finding says
	blocks        int    // 1 unless it is given
	shared        int
}

var bugs = []planted{
	{"oob_global", "out-of-bounds", illegalAddress, "thread=63,0,0 .* writes 4 bytes .* 256 bytes from the begin of 256", 1, 0},
	{"oob_before", "out-of-bounds", illegalAddress, "thread=0,0,0 .* reads 4 bytes", 1, 0},
	{"oob_shared", "out-of-bounds", illegalAddress, "thread=63,0,0 .* reads shared memory", 1, 0},
	{"oob_dynamic", "out-of-bounds", illegalAddress, "thread=32,0,0 .* writes 4 bytes", 1, 128},
	{"oob_local", "out-of-bounds", illegalAddress, "thread=6,0,0 .* reads 4 bytes of local memory", 1, 0},
	{"oob_wild", "out-of-bounds", illegalAddress, "0x12345000, which is no memory of a device", 1, 0},
	{"oob_far", "out-of-bounds", illegalAddress, "thread=0,0,0 .* writes 4 bytes", 1, 0},

	{"misaligned_store", "misaligned", misaligned, "writes (8|16) bytes of global memory at 0x[0-9a-f]*[4c]$", 1, 0},
	{"misaligned_load", "misaligned", misaligned, "thread=1,0,0 .* reads 4 bytes of global memory", 1, 0},
	{"misaligned_shared", "misaligned", misaligned, "reads 8 bytes of shared memory", 1, 0},

	{"uninit_global", "uninitialised", assertion, "thread=0,0,0 .* reads global memory", 1, 0},
	{"uninit_shared", "uninitialised", assertion, "thread=63,0,0 .* reads shared memory", 1, 0},
	{"uninit_local", "uninitialised", assertion, "thread=63,0,0 .* reads local memory", 1, 0},
	{"uninit_stale", "uninitialised", assertion, "block=1,0,0 .* reads shared memory", 2, 0},

	{"race_barrier", "race", assertion, "shared memory at 0x[0-9a-f]+, which thread [0-9]+,0,0 has (written|read) with no barrier", 1, 0},
	{"race_again", "race", assertion, "writes shared memory at 0x[0-9a-f]+, which thread (31|33),0,0 has read with no barrier", 1, 0},
	{"race_warp", "race", assertion, "reads shared memory at 0x[0-9a-f]+, which thread 1,0,0 has written with no barrier of the warp", 1, 0},
	{"race_shuffle", "race", assertion, "with no barrier of the warp", 1, 0},
	{"race_copy", "race", assertion, "to which a copy is under way", 1, 0},
	{"race_copy_group", "race", assertion, "to which a copy is under way", 1, 0},
	{"race_copy_barrier", "race", assertion, "with no barrier between", 1, 0},
	{"race_global", "race", assertion, "thread=32,0,0|thread=0,0,0", 1, 0},

	{"copy_oob_source", "out-of-bounds", illegalAddress, "thread=1,0,0 .* reads 16 bytes of global memory at 0x[0-9a-f]+, 16 bytes from the begin of 24", 1, 0},
	{"copy_oob_shared", "out-of-bounds", illegalAddress, "thread=15,0,0 .* writes shared memory at 0x[0-9a-f]+0, beyond the end", 1, 0},
	{"copy_uninit", "uninitialised", assertion, "thread=0,0,0 .* reads global memory", 1, 0},
	{"copy_race_source", "race", assertion, "thread=32,0,0 .* reads global memory at 0x[0-9a-f]+, which thread 16,0,0 has written with no barrier between", 1, 0},
	{"copy_race_shared", "race", assertion, "thread=0,0,0 .* reads shared memory at 0x[0-9a-f]+, to which a copy is under way", 1, 0},

	{"readers_warps", "race", assertion, "thread=40,0,0 .* writes shared memory at 0x[0-9a-f]+, which several warps have read with no barrier between", 1, 0},
	{"readers_lanes", "race", assertion, "thread=4,0,0 .* writes shared memory at 0x[0-9a-f]+, which several threads of warp 0 have read with no barrier of the warp", 1, 0},
	{"readers_warps_bytes", "race", assertion, "thread=40,0,0 .* writes shared memory at 0x[0-9a-f]+, which several warps have read with no barrier between", 1, 0},
	{"readers_lanes_bytes", "race", assertion, "thread=4,0,0 .* writes shared memory at 0x[0-9a-f]+, which several threads of warp 0 have read with no barrier of the warp", 1, 0},
	{"readers_warps_global", "race", assertion, "thread=40,0,0 .* writes global memory at 0x[0-9a-f]+, which several warps have read with no barrier between", 1, 0},
	{"readers_lanes_global", "race", assertion, "thread=4,0,0 .* writes global memory at 0x[0-9a-f]+, which several threads of warp 0 have read with no barrier of the warp", 1, 0},
	{"readers_warps_global_bytes", "race", assertion, "thread=40,0,0 .* writes global memory at 0x[0-9a-f]+, which several warps have read with no barrier between", 1, 0},
	{"readers_lanes_global_bytes", "race", assertion, "thread=4,0,0 .* writes global memory at 0x[0-9a-f]+, which several threads of warp 0 have read with no barrier of the warp", 1, 0},

	{"blocks_readers", "race", assertion, "block=1,0,0 .* writes global memory at 0x[0-9a-f]+, which several blocks have read in this launch", 2, 0},
	{"blocks_readers_bytes", "race", assertion, "block=1,0,0 .* writes global memory at 0x[0-9a-f]+, which several blocks have read in this launch", 2, 0},
	{"blocks_write", "race", assertion, "block=1,0,0 thread=0,0,0 .* writes global memory at 0x[0-9a-f]+, which thread 0,0,0 of block 0,0,0 has written in this launch", 2, 0},
	{"blocks_sum", "race", assertion, "block=1,0,0 .* in this launch", 2, 0},
	{"blocks_neighbour", "race", assertion, "block=1,0,0 .* in this launch", 2, 0},
	{"blocks_atomic", "race", assertion, "thread=63,0,0 .* reads global memory", 1, 0},
	{"blocks_atomic", "race", assertion, "", 2, 0},

	{"barrier_branches", "divergent-barrier", launchFailed, "waits at barrier 0, but warp 1 waits at barrier 0 at bugs.cu", 1, 0},
	{"barrier_lane", "divergent-barrier", launchFailed, "lanes 00000080 of its warp have returned", 1, 0},
	{"barrier_warp", "divergent-barrier", launchFailed, "warp 1 has returned", 1, 0},
	{"barrier_loop", "divergent-barrier", launchFailed, "", 1, 0},

	{"shuffle_half", "divergent-shuffle", launchFailed, "reads lane 0, which does not take part", 1, 0},
	{"shuffle_branches", "divergent-shuffle", launchFailed, "lanes (aaaaaaaa|55555555) wait for others", 1, 0},
	{"shuffle_gone", "divergent-shuffle", launchFailed, "thread=0,0,0 .* reads lane 16, which does not take part", 1, 0},
	{"shuffle_mask", "divergent-shuffle", launchFailed, "thread=16,0,0 .* mask 0000ffff that it is not in", 1, 0},
	{"shuffle_masks", "divergent-shuffle", launchFailed, "mask", 1, 0},
	{"shuffle_outside", "divergent-shuffle", launchFailed, "thread=0,0,0 .* reads lane 16", 1, 0},
	{"syncwarp_half", "divergent-shuffle", launchFailed, "lanes (aaaaaaaa|55555555) wait for others", 1, 0},

	{"trapped", "trap", launchFailed, "thread=3,0,0", 1, 0},
}

// TestPlantedBugs demands that each bug is found, at its line and of its class, and that
// the error is the driver's: it comes when something waits, and stays.
func TestPlantedBugs(t *testing.T) {
	lines := bugLines(t)
	for _, p := range bugs {
		t.Run(fmt.Sprintf("%s/%d", p.kernel, p.blocks), func(t *testing.T) {
			r := start(t, 0)
			f := r.function(r.module(ptx(t, "bugs")), p.kernel)
			x, y := r.upload(floats(random(64, 5)...)), r.alloc(256)
			if e := r.launch(f, dim{p.blocks}, dim{64}, p.shared, 0, x, y, 64); e != success {
				t.Fatalf("launch: error %d", e)
			}
			if findings() != "" {
				t.Error("it ran before something waited")
			}
			r.want(p.code, "cuStreamSynchronize", 0)
			r.found(p.class, p.says)
			r.want(p.code, "cuCtxSynchronize")
			r.want(p.code, "cuMemcpyDtoH_v2", 0, x, 4)
			text := findings()
			if !strings.Contains(text, " kernel="+p.kernel+" ") {
				t.Errorf("the kernel is not named: %s", text)
			}
			m := regexp.MustCompile(`at=bugs\.cu:(\d+)(\(gpu\.h:\d+\))? `).FindStringSubmatch(text)
			if m == nil {
				t.Fatalf("the line is not named: %s", text)
			}
			// A fault in a function of the header has the last line before it, too.
			n, _ := strconv.Atoi(m[1])
			near := func(l int) bool { return l == n || (m[2] != "" && n < l && l < n+4) }
			if lines[p.kernel] != nil && !slices.ContainsFunc(lines[p.kernel], near) {
				t.Errorf("line %d, want one of %v: %s", n, lines[p.kernel], text)
			}
		})
	}
}

// TestEveryClassHasThree holds the table above against its aim.
func TestEveryClassHasThree(t *testing.T) {
	count := map[string]int{}
	for _, p := range bugs {
		class := p.class
		if strings.HasPrefix(p.kernel, "blocks_") {
			class = "race between blocks"
		}
		count[class]++
	}
	for _, class := range []string{"out-of-bounds", "misaligned", "uninitialised", "race", "race between blocks", "divergent-barrier", "divergent-shuffle"} {
		if count[class] < 3 {
			t.Errorf("%s: %d bugs are planted, want 3", class, count[class])
		}
	}
}
