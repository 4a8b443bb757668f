package trace_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// A recorder writes a header and one event a line; Read gives them back.
func ExampleRead() {
	file := `{"schema":"lockstep/history/v2","arithmetic":2,"rank":0,"world":2,"plan":"dp=2","model":"nano","backend":"mine"}
{"kind":"tokens","rank":0,"step":0,"count":512}
{"kind":"end","rank":0,"step":0}
`
	log, err := trace.Read(strings.NewReader(file), "0000.ndjson")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range log.Events() {
		fmt.Println(e.Kind, e.Count)
	}
	// Output:
	// tokens 512
	// end 0
}

// What is not of the format is refused by file, line, field and rule.
func ExampleRead_refused() {
	file := `{"schema":"lockstep/history/v2","arithmetic":2,"rank":0,"world":2,"plan":"dp=2","model":"nano","backend":"mine"}
{"kind":"tokens","rank":0,"step":0,"count":-1}
`
	_, err := trace.Read(strings.NewReader(file), "0000.ndjson")
	fmt.Println(err)
	// Output:
	// 0000.ndjson:2: tokens event: count: -1: must not be negative
}

// The logs of a run's ranks make its history; ranks that left none are missing.
func ExampleMerge() {
	var logs []*trace.Log
	for _, rank := range []int{2, 0} {
		l := &trace.Log{Header: trace.Header{Schema: trace.Schema, Rank: rank, World: 3, Plan: "dp=3"}}
		l.Record(trace.Event{Kind: trace.KindComm, Op: names.OpBarrier, Group: names.DP, Ranks: []int{0, 1, 2}})
		logs = append(logs, l)
	}
	h, err := trace.Merge(logs)
	if err != nil {
		fmt.Println(err)
		return
	}
	for e := range h.All {
		fmt.Println(e.Rank, e.Op, e.Ranks)
	}
	fmt.Println("missing", h.Missing())
	// Output:
	// 0 barrier [0 1 2]
	// 2 barrier [0 1 2]
	// missing [1]
}

// A log is written as what Read reads.
func ExampleLog_Write() {
	l := &trace.Log{Header: trace.Header{Schema: trace.Schema, World: 1, Plan: "dp=1", Model: "mine", Backend: "mine",
		Spec: trace.Spec{Observed: []byte(`{"trainer":"mine"}`)}}}
	l.Record(trace.Event{Kind: trace.KindScalar, Step: 0, What: trace.Loss, Value: 5.5, Once: true})
	if err := l.Write(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"schema":"lockstep/history/v2","arithmetic":0,"rank":0,"world":1,"plan":"dp=1","model":"mine","backend":"mine","spec":{"observed":{"trainer":"mine"}}}
	// {"kind":"scalar","rank":0,"step":0,"what":"loss","once":true,"value":5.5}
}

// An event is valid where it has the form of its kind.
func ExampleEvent_Validate() {
	e := trace.Event{Kind: trace.KindDigest, What: trace.Weight, Tensor: "model.norm.weight", Count: 32}
	fmt.Println(e.Validate())
	e.Digest = &kernels.Digest{A: 1, B: 2}
	fmt.Println(e.Validate())
	// Output:
	// digest event: digest: missing, or zero
	// <nil>
}

// A history of any trainer has a fingerprint where it marks what counts once.
func Example_fingerprint() {
	l := &trace.Log{Header: trace.Header{Schema: trace.Schema, World: 1}}
	l.Record(trace.Event{Kind: trace.KindDigest, What: trace.Weight, Tensor: "w", Digest: &kernels.Digest{A: 1, B: 2}, Once: true})
	l.Record(trace.Event{Kind: trace.KindDigest, What: trace.Momentum, Tensor: "w", Digest: &kernels.Digest{A: 3, B: 4}, Once: true})
	l.Record(trace.Event{Kind: trace.KindScalar, What: trace.Loss, Value: 1, Bits: 0x3f800000, Once: true})
	h, err := trace.Merge([]*trace.Log{l})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(spec.FingerprintAt(h, 0))
	// Output:
	// weights=00000000000000010000000000000002 moments=00000000000000030000000000000004 loss=3f800000 <nil>
}
