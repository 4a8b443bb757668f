package trace

// held is an event that waits, and what completes it; nil where it only waits behind others.
type held struct {
	event Event
	fill  func(*Event)
}

// Hold implements Holder.
func (l *Log) Hold(e Event, fill func(*Event)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = true
	l.held = append(l.held, held{e, fill})
}

// joins has an event wait behind those that are held, if there are any.
func (l *Log) joins(e Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds {
		l.held = append(l.held, held{event: e})
	}
	return l.holds
}

// Release implements Holder. What is recorded meanwhile comes after what was held.
func (l *Log) Release() {
	for {
		l.mu.Lock()
		waiting := l.held
		l.held = nil
		l.holds = len(waiting) > 0
		l.mu.Unlock()
		if len(waiting) == 0 {
			return
		}
		for i := range waiting {
			h := &waiting[i]
			if h.fill != nil {
				h.fill(&h.event)
			}
			l.pass(h.event)
		}
	}
}
