//go:build ptx

package cuda

//go:generate go run ../../internal/ptx -write
