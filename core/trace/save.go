package trace

// Save writes every rank's history to <dir>/<rank>.ndjson, each complete or not
// at all.
func (h *History) Save(dir string) error {
	for r := range h.Header.World {
		events, ok := h.Ranks[r]
		if !ok {
			continue
		}
		l := &Log{Header: h.Of(r), events: events}
		if err := l.Save(dir); err != nil {
			return err
		}
	}
	return nil
}
