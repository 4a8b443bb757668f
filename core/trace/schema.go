package trace

import _ "embed"

//go:embed schema.json
var jsonSchema string

// JSONSchema describes one line of a history file (JSON Schema, draft 2020-12):
// the header, or an event. It follows from Event, Header and Forms; what it
// cannot say, such as lo <= hi, Read checks all the same.
func JSONSchema() string { return jsonSchema }
