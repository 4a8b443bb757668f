package source

import (
	"go/scanner"
	"go/token"
)

// CodeLines counts the lines of a file that hold at least one token: neither
// blank lines nor comments.
func (f *File) CodeLines() int {
	fset := token.NewFileSet()
	file := fset.AddFile(f.Name, -1, len(f.Src))
	var s scanner.Scanner
	s.Init(file, f.Src, nil, 0) // comments are skipped
	n, last := 0, 0
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue // inserted at the end of a line
		}
		first := file.Line(pos)
		end := first
		if tok == token.STRING {
			end = file.Line(pos + token.Pos(len(lit)-1)) // raw strings span lines
		}
		n += end - max(first, last+1) + 1
		last = max(last, end)
	}
}
