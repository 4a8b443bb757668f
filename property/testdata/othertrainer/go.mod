module example.com/othertrainer

go 1.26.0

require github.com/lockstep-ml/lockstep v0.0.0

require golang.org/x/sync v0.23.0 // indirect

replace github.com/lockstep-ml/lockstep => ../../..
