package cpu

//go:generate go run -C internal/gen ./tile -out ../../tile_amd64.s -stubs ../../tile_amd64.go -pkg cpu
//go:generate go run -C internal/gen ./vector -out ../../vector_amd64.s -stubs ../../vector_amd64.go -pkg cpu
//go:generate go run -C internal/gen ./table ../../table_amd64.go
