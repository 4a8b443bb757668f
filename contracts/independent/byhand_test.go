package independent_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/independent"
)

// byHand writes a checkpoint of one file for each list of pieces, by none of the
// program's writers: the elements of a piece count from its number up.
func byHand(t *testing.T, dir string, step, counter int, files ...[]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	metadata := fmt.Sprintf(`{"schema":"s","step":"%d","counter":"%d"}`, step, counter)
	var list []string
	for i, pieces := range files {
		head, data := []string{`"__metadata__":` + metadata}, []byte(nil)
		for j, name := range pieces {
			var what string
			var r0, r1, c0, c1 int
			place := name[strings.LastIndex(name, "["):]
			if _, err := fmt.Sscanf(place, "[%d:%d,%d:%d]", &r0, &r1, &c0, &c1); err != nil {
				t.Fatal(what, err)
			}
			at := len(data)
			for k := range (r1 - r0) * (c1 - c0) {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(100*(j+1)+k)))
			}
			head = append(head, fmt.Sprintf(`%q:{"dtype":"F32","shape":[%d,%d],"data_offsets":[%d,%d]}`, name, r1-r0, c1-c0, at, len(data)))
		}
		h := "{" + strings.Join(head, ",") + "}"
		x := slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), []byte(h), data)
		name := fmt.Sprintf("file-%d", i)
		if err := os.WriteFile(filepath.Join(dir, name), x, 0o644); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(x)
		list = append(list, fmt.Sprintf(`{"name":%q,"bytes":%d,"sha256":%q}`, name, len(x), hex.EncodeToString(sum[:])))
	}
	m := fmt.Sprintf(`{"schema":"s","arithmetic":2,"step":%d,"counter":%d,"spec":{"a":[{"b":1}]},"digests":{"weight":"0"},"files":[%s]}`, step, counter, strings.Join(list, ","))
	if err := os.WriteFile(filepath.Join(dir, "checkpoint.json"), []byte(m), 0o644); err != nil {
		t.Fatal(err)
	}
}

// two are the parameters of these checkpoints.
var two = []independent.Param{{Name: "t", Rows: 2, Cols: 3}, {Name: "u", Rows: 1, Cols: 2}}

// TestPiecesByHand puts tensors together from pieces of every kind of cut.
func TestPiecesByHand(t *testing.T) {
	const u = "weight/u[0:1,0:2]"
	for _, c := range []struct {
		name  string
		files [][]string
		want  []float32 // of t
		says  string
	}{
		{"whole", [][]string{{"weight/t[0:2,0:3]", u}}, []float32{100, 101, 102, 103, 104, 105}, ""},
		{"rows", [][]string{{"weight/t[1:2,0:3]"}, {u, "weight/t[0:1,0:3]"}}, []float32{200, 201, 202, 100, 101, 102}, ""},
		{"columns", [][]string{{"weight/t[0:2,0:1]", u, "weight/t[0:2,1:3]"}}, []float32{100, 300, 301, 101, 302, 303}, ""},
		{"corner", [][]string{{"weight/t[0:1,0:3]", "weight/t[1:2,0:2]", u, "weight/t[1:2,2:3]"}}, []float32{100, 101, 102, 200, 201, 400}, ""},
		{"the first missing", [][]string{{"weight/t[0:1,1:3]", "weight/t[1:2,0:3]", u}}, nil, "weight of t: 5 of 6 elements, element 0 is missing"},
		{"the last missing", [][]string{{"weight/t[0:1,0:3]", "weight/t[1:2,0:2]", u}}, nil, "weight of t: 5 of 6 elements, element 5 is missing"},
		{"half missing", [][]string{{"weight/t[0:1,0:3]", u}}, nil, "weight of t: 3 of 6 elements, element 3 is missing"},
		{"a tensor missing", [][]string{{"weight/t[0:2,0:3]"}}, nil, "weight of u is missing"},
		{"nothing", [][]string{{}}, nil, "is missing"},
		{"an element twice", [][]string{{"weight/t[0:2,0:3]", u, "weight/t[1:2,2:3]"}}, nil, `weight of t at [1:2,2:3]: element 5 is stored twice`},
		{"twice and missing", [][]string{{"weight/t[0:1,0:3]", "weight/t[0:1,2:3]", "weight/t[1:2,0:2]", u}}, nil, "element 2 is stored twice"},
		{"in two files", [][]string{{"weight/t[0:2,0:3]", u}, {u}}, nil, `file "file-1": weight of u at [0:1,0:2]: element 0 is stored twice`},
		{"a row more", [][]string{{"weight/t[0:2,0:3]", u, "weight/t[2:3,0:3]"}}, nil, "the parameter is 2 x 3"},
		{"a column more", [][]string{{"weight/t[0:2,0:4]", u}}, nil, "the parameter is 2 x 3"},
		{"another parameter", [][]string{{"weight/t[0:2,0:3]", u, "weight/v[0:1,0:1]"}}, nil, "no such parameter"},
		{"another kind", [][]string{{"weight/t[0:2,0:3]", u, "m/u[0:1,0:1]"}}, nil, "kinds are [weight]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			byHand(t, dir, 7, 5, c.files...)
			got, err := independent.OpenCheckpoint(dir, two, nil)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %q", err, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if x := got.Tensors["weight"]["t"]; !slices.Equal(x, c.want) || len(got.Tensors) != 1 || len(got.Tensors["weight"]) != 2 {
				t.Errorf("%v, want t to be %v", got.Tensors, c.want)
			}
			if got.Schema != "s" || got.Arithmetic != 2 || got.Step != 7 || got.Counter != 5 || string(got.Spec) != `{"a":[{"b":1}]}` || got.Digests["weight"] != "0" {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestManifestsByHand changes the manifest of a whole checkpoint.
func TestManifestsByHand(t *testing.T) {
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	for _, c := range []struct{ dir, old, with, says string }{
		{"any", "", "", ""},
		{"step-00000007", "", "", ""},
		{"step-00000006", "", "", "checkpoint.json: is of step 7"},
		{"step-6", "", "", ""}, // not a name that a run gives
		{"any", `"files":[`, `"files":[ `, ""},
		{"any", `"file-0"`, `""`, `file "": must be a name within`},
		{"any", `"file-0"`, `"."`, "must be a name within"},
		{"any", `"file-0"`, `".."`, "must be a name within"},
		{"any", `"file-0"`, `"a/file-0"`, "must be a name within"},
		{"any", `"bytes":`, `"bytes":1`, "bytes, the manifest says 1"},
		{"any", `"spec":{"a"`, `"spec":{"":{},"a"`, ""},
		{"any", `"sha256":"`, `"sha256":"0`, "SHA-256"},
		{"any", `"schema":"s"`, `"schema":"r"`, "says map"},
		{"any", `"step":7`, `"step":8`, "says map"},
		{"any", `"counter":5`, `"counter":4`, "says map"},
		{"any", `{"b":1}`, `{"b":1,"b":2}`, `"b" is given twice`},
		{"any", `{"b":1}`, `{"b":1,"B":2}`, `"B" is given twice`},
		{"any", `{"a":[`, `{"a":1,"a":[`, `"a" is given twice`},
		{"any", `{"b":1}`, nested(14), ""},
		{"any", `{"b":1}`, nested(15), "nested deeper than 16"},
		{"any", `"digests":{`, `"digests":{"weight":"1",`, `"weight" is given twice`},
		{"any", `{"schema"`, `[{"schema"`, "no JSON object"},
		{"any", `{"schema"`, strings.Repeat(" ", 16<<20) + `{"schema"`, "must be at most 16777216"},
		{"any", `{"schema"`, strings.Repeat(" ", 1<<20) + `{"schema"`, ""},
	} {
		dir := filepath.Join(t.TempDir(), c.dir)
		byHand(t, dir, 7, 5, []string{"weight/t[0:2,0:3]", "weight/u[0:1,0:2]"})
		path := filepath.Join(dir, "checkpoint.json")
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), c.old) {
			t.Fatalf("%s: %v", c.old, err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(b), c.old, c.with, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err = independent.OpenCheckpoint(dir, two, nil)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %.20s for %s: %v, want %q", c.dir, c.with, c.old, err, c.says)
		}
	}
}
