package contracts

import (
	"strings"
	"testing"
)

func TestTheContractsAreComplete(t *testing.T) {
	if err := Validate(All()); err != nil {
		t.Error(err)
	}
}

func TestFindIgnoresLetterCase(t *testing.T) {
	for _, c := range All() {
		for _, id := range []string{c.ID, strings.ToLower(c.ID)} {
			if got, err := Find(id); err != nil || got.ID != c.ID {
				t.Errorf("%s: %v", id, err)
			}
		}
		if _, err := Find(c.ID + "0"); err == nil || !strings.Contains(err.Error(), c.ID) {
			t.Errorf("%s0: %v, want the known IDs", c.ID, err)
		}
	}
	if _, err := Find(""); err == nil {
		t.Error("an empty ID is found")
	}
}
