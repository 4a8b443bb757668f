package suite

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/core/checkpoint"
)

// repaired makes manifest and hashes agree with what was done to a file.
const repaired = " and the hash repaired"

// beyond is a step that no run here has.
const beyond = 9

// inHeaders are the damages that a hash cannot show: whoever made the file says
// them.
func inHeaders() map[string]func(dir string) error {
	a, b := checkpoint.FileName(0), checkpoint.FileName(1)
	out := map[string]func(dir string) error{
		"longer by an element":                   edit(b, func(x []byte) []byte { return append(x, 0, 0, 0, 0) }),
		"cut short by an element":                edit(b, func(x []byte) []byte { return x[:len(x)-4] }),
		"an element stored twice":                retold(b, twice),
		"an element stored in place of another":  retold(b, inPlace),
		"a tensor in two files":                  inBoth(a, b),
		"a tensor more":                          retold(b, unknown),
		"a gap between tensors":                  retold(b, gap),
		"two tensors of the same data":           retold(b, shared),
		"a type of the same size":                edit(b, replaced(`"F32"`, `"I32"`)),
		"an entry twice in the header":           edit(b, again),
		"a field twice in the metadata":          edit(b, headed(`"counter":"2"`, `"counter":"1","counter":"2"`)),
		"a field more in the metadata":           edit(b, headed(`"counter":"2"`, `"counter":"2","format":"pt"`)),
		"a blank in the metadata":                edit(b, headed(`"step":"2"`, `"step":"2 "`)),
		"a blank before the header":              edit(b, headed(`{"__metadata__"`, ` {"__metadata__"`)),
		"blanks in the header":                   edit(b, headed(`":{"`, `" : {"`, `}}`, `} }        `)),
		"tensors in another order in the header": edit(b, reordered),
	}
	for _, name := range slices.Collect(maps.Keys(out)) {
		out[name+repaired] = all(out[name], reseal)
		delete(out, name)
	}
	out["a blank in the header"] = edit(b, headed(`":{"`, `" :{"`))
	out["a link to the same file elsewhere"] = linked(b)
	out["listed twice"] = manifested(func(m map[string]any) {
		files, _ := m["files"].([]any)
		m["files"] = append(files, files[len(files)-1])
	})
	out["manifest of another size"] = manifested(func(m map[string]any) {
		files, _ := m["files"].([]any)
		last, _ := files[len(files)-1].(map[string]any)
		last["bytes"] = 1
	})
	out["manifest with a field twice"] = edit(checkpoint.ManifestName, replaced(`"counter": 2`, `"counter": 1, "counter": 2`))
	out["manifest with a field twice in another case"] = edit(checkpoint.ManifestName, replaced(`"sequences"`, `"Sequences": 7, "sequences"`))
	out["manifest of another step"] = manifested(setting(1, "step"))
	out["blanks in the manifest"] = edit(checkpoint.ManifestName, func(x []byte) []byte {
		return append(bytes.ReplaceAll(x, []byte(`":`), []byte("\"\n\t :")), "\r\n \n"...)
	})
	out["after the last step"] = all(
		edit(a, headed(`"step":"2"`, fmt.Sprintf(`"step":"%d"`, beyond))), edit(b, headed(`"step":"2"`, fmt.Sprintf(`"step":"%d"`, beyond))),
		reseal, manifested(setting(beyond, "step")),
		func(dir string) error {
			return os.Rename(dir, filepath.Join(filepath.Dir(dir), checkpoint.DirName(beyond)))
		})
	return out
}

// replaced replaces a text wherever it is.
func replaced(old, with string) func([]byte) []byte {
	return func(x []byte) []byte { return bytes.ReplaceAll(x, []byte(old), []byte(with)) }
}

// split takes a file apart: its header and its data.
func split(x []byte) (head string, data []byte) {
	n := 8 + int(binary.LittleEndian.Uint64(x))
	return string(x[8:n]), x[n:]
}

// join puts a file together.
func join(head string, data []byte) []byte {
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), []byte(head), data)
}

// headed replaces in a header, whose length may change.
func headed(oldnew ...string) func([]byte) []byte {
	return func(x []byte) []byte {
		head, data := split(x)
		return join(strings.NewReplacer(oldnew...).Replace(head), data)
	}
}

// entry is one of a header.
type entry struct {
	DType   string   `json:"dtype"`
	Shape   [2]int   `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// told is what a file holds.
type told struct {
	entries  map[string]entry // by kind/tensor[r0:r1,c0:c1]
	metadata json.RawMessage
	data     []byte
}

func tell(x []byte) (*told, error) {
	head, data := split(x)
	t := &told{entries: map[string]entry{}, data: bytes.Clone(data)}
	var raw map[string]json.RawMessage
	err := json.Unmarshal([]byte(head), &raw)
	for name, r := range raw {
		if name == metadata {
			t.metadata = r
			continue
		}
		var e entry
		err = errors.Join(err, json.Unmarshal(r, &e))
		t.entries[name] = e
	}
	return t, err
}

const metadata = "__metadata__"

// bytes is the file.
func (t *told) bytes() ([]byte, error) {
	head := map[string]any{metadata: t.metadata}
	for name, e := range t.entries {
		head[name] = e
	}
	b, err := json.Marshal(head)
	return join(string(b), t.data), err
}

// add stores elements at the end of the data, under a name made of a tensor's and
// the first row and column.
func (t *told) add(what string, r0, c0 int, shape [2]int, elements []byte) {
	n := int64(len(t.data))
	t.data = append(t.data, elements...)
	t.entries[fmt.Sprintf("%s[%d:%d,%d:%d]", what, r0, r0+shape[0], c0, c0+shape[1])] = entry{"F32", shape, [2]int64{n, int64(len(t.data))}}
}

// of are an entry's elements.
func (t *told) of(name string) []byte {
	at := t.entries[name].Offsets
	return t.data[at[0]:at[1]]
}

// first is the first entry, in the order of names, that is wanted.
func (t *told) first(want func(name string, e entry) bool) (string, entry) {
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		if want(name, t.entries[name]) {
			return name, t.entries[name]
		}
	}
	return "", entry{}
}

// last is the entry whose data come last.
func (t *told) last() (string, entry) {
	return t.first(func(_ string, e entry) bool { return e.Offsets[1] == int64(len(t.data)) })
}

// retold changes what a file holds.
func retold(file string, change func(t *told)) func(dir string) error {
	return func(dir string) error {
		return rewrite(filepath.Join(dir, file), func(x []byte) ([]byte, error) {
			t, err := tell(x)
			if err != nil {
				return nil, err
			}
			change(t)
			return t.bytes()
		})
	}
}

// place is the tensor of an entry and the first row and column.
func place(name string) (what string, r0, c0 int) {
	what, at, _ := strings.Cut(name, "[")
	var end int
	_, _ = fmt.Sscanf(at, "%d:%d,%d:", &r0, &end, &c0)
	return what, r0, c0
}

// twice stores the first element of a tensor once more, under a name of its own.
func twice(t *told) {
	name, _ := t.first(func(_ string, e entry) bool { return e.Shape[0]*e.Shape[1] > 1 })
	what, r0, c0 := place(name)
	t.add(what, r0, c0, [2]int{1, 1}, t.of(name)[:4])
}

// inPlace stores the second half of the embedding's moment a row earlier: as many
// elements as there were, but a row is there twice and one is not. Those are of
// bytes that the text does not have, so all are 0 and no digest tells.
func inPlace(t *told) {
	name, e := t.first(func(name string, _ entry) bool { return strings.HasPrefix(name, "m/model.embed_tokens.weight[") })
	what, r0, c0 := place(name)
	x, cols := t.of(name), e.Shape[1]
	rows := e.Shape[0] / 2
	t.add(what, r0, c0, [2]int{rows, cols}, x[:4*rows*cols])
	t.add(what, r0+rows-1, c0, [2]int{e.Shape[0] - rows, cols}, x[4*rows*cols:])
	t.remove(name)
}

// remove takes an entry and its elements away.
func (t *told) remove(name string) {
	at := t.entries[name].Offsets
	delete(t.entries, name)
	t.data = slices.Delete(t.data, int(at[0]), int(at[1]))
	for other, e := range t.entries {
		if e.Offsets[0] >= at[1] {
			e.Offsets[0], e.Offsets[1] = e.Offsets[0]-at[1]+at[0], e.Offsets[1]-at[1]+at[0]
			t.entries[other] = e
		}
	}
}

// unknown stores a tensor once more under a name that no parameter has.
func unknown(t *told) {
	name, e := t.first(func(string, entry) bool { return true })
	what, r0, c0 := place(name)
	t.add(what+".more", r0, c0, e.Shape, t.of(name))
}

// gap leaves an element unused before the tensor that comes last.
func gap(t *told) {
	name, e := t.last()
	t.data = slices.Insert(t.data, int(e.Offsets[0]), 0, 0, 0, 0)
	e.Offsets[0], e.Offsets[1] = e.Offsets[0]+4, e.Offsets[1]+4
	t.entries[name] = e
}

// shared lets the tensor that comes last have the data of another of its size.
func shared(t *told) {
	name, e := t.last()
	_, other := t.first(func(x string, o entry) bool { return x != name && o.Shape == e.Shape })
	t.data = t.data[:e.Offsets[0]]
	e.Offsets = other.Offsets
	t.entries[name] = e
}

// inBoth stores the first tensor of one file in another, too.
func inBoth(from, to string) func(dir string) error {
	return func(dir string) error {
		x, err := os.ReadFile(filepath.Join(dir, from))
		if err != nil {
			return err
		}
		source, err := tell(x)
		if err != nil {
			return err
		}
		name, e := source.first(func(string, entry) bool { return true })
		what, r0, c0 := place(name)
		return retold(to, func(t *told) { t.add(what, r0, c0, e.Shape, source.of(name)) })(dir)
	}
}

// reordered writes the entries of a header in the order of their data, the last
// one first.
func reordered(x []byte) []byte {
	t, err := tell(x)
	if err != nil {
		return x
	}
	out := fmt.Sprintf("{%q:%s", metadata, t.metadata)
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(t.entries))) {
		e, _ := json.Marshal(t.entries[name]) // numbers and text
		out += fmt.Sprintf(",%q:%s", name, e)
	}
	return join(out+"}", t.data)
}

// again gives the first entry of a header twice, with the same data.
func again(x []byte) []byte {
	t, err := tell(x)
	if err != nil {
		return x
	}
	name, e := t.first(func(string, entry) bool { return true })
	one, _ := json.Marshal(e) // numbers and text
	head, data := split(x)
	return join(fmt.Sprintf("{%q:%s,%s", name, one, head[1:]), data)
}

// linked moves a file out of the checkpoint and leaves a link to it.
func linked(file string) func(dir string) error {
	return func(dir string) error {
		aside := filepath.Join(filepath.Dir(dir), "elsewhere")
		return errors.Join(os.Rename(filepath.Join(dir, file), aside), os.Symlink(aside, filepath.Join(dir, file)))
	}
}
