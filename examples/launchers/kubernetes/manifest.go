package kubernetes

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Manifest is what verify.yaml holds.
type Manifest struct {
	Service *core.Service
	Job     *batch.Job
}

// Read decodes a manifest strictly: fields that the types do not have, or that are
// there twice, are errors, and so is any object but one service and one job.
func Read(text []byte) (*Manifest, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(core.AddToScheme(scheme), batch.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	m := &Manifest{}
	for docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		object, kind, err := decoder.Decode(doc, nil, nil)
		if err != nil {
			return nil, err
		}
		switch x := object.(type) {
		case *core.Service:
			if m.Service != nil {
				return nil, errors.New("a second service")
			}
			m.Service = x
		case *batch.Job:
			if m.Job != nil {
				return nil, errors.New("a second job")
			}
			m.Job = x
		default:
			return nil, fmt.Errorf("a %s", kind.Kind)
		}
	}
	if m.Service == nil || m.Job == nil {
		return nil, errors.New("a service and a job are needed")
	}
	return m, nil
}
