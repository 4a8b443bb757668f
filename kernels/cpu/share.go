package cpu

// Work over rows and columns is shared by rows where there are enough, else by
// columns.

// soloElements is how many elements one thread does alone.
const soloElements = 1 << 15

// mostParts is how many parts a thread has at most.
const mostParts = 4

// parallelRows dispatches a call over rows x cols elements of the first view.
// Its parts are found by share and columns.
func (c *call) parallelRows(rows, cols int) {
	c.rows, c.cols = rows, cols
	c.perPart, c.byColumns = rows, false
	parts := 1
	if threads := c.b.threads; threads > 1 && rows*cols > soloElements {
		want := min(mostParts*threads, (rows*cols+soloElements-1)/soloElements)
		if rows >= want {
			c.perPart = (rows + want - 1) / want
			parts = (rows + c.perPart - 1) / c.perPart
		} else {
			c.byColumns = true
			c.perPart = roundUp((cols+want-1)/want, 64)
			parts = (cols + c.perPart - 1) / c.perPart
		}
	}
	c.b.dispatch(c, parts)
}

// parallelWholeRows is parallelRows for kernels that need whole rows.
func (c *call) parallelWholeRows(rows, cols int) {
	c.rows, c.cols, c.byColumns, c.perPart = rows, cols, false, rows
	if threads := c.b.threads; threads > 1 && rows*cols > soloElements {
		c.perPart = (rows + mostParts*threads - 1) / (mostParts * threads)
	}
	c.b.dispatch(c, (rows+c.perPart-1)/c.perPart)
}

// parallelColumns is parallelRows for kernels whose rows must run in order.
func (c *call) parallelColumns(rows, cols int) {
	c.rows, c.cols = rows, cols
	c.byColumns, c.perPart = true, cols
	if threads := c.b.threads; threads > 1 && rows*cols > soloElements && cols > 64 {
		c.perPart = roundUp((cols+threads-1)/threads, 64)
	}
	c.b.dispatch(c, (cols+c.perPart-1)/c.perPart)
}

// share is the range of rows of a part.
func (c *call) share(part int) (lo, hi int) {
	if c.byColumns {
		return 0, c.rows
	}
	return part * c.perPart, min((part+1)*c.perPart, c.rows)
}

// columns is the range of columns of a part.
func (c *call) columns(part int) (lo, hi int) {
	if !c.byColumns {
		return 0, c.cols
	}
	return part * c.perPart, min((part+1)*c.perPart, c.cols)
}
