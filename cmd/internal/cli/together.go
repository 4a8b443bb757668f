package cli

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Apart has a command refuse flags that have no meaning beside another one.
func Apart(cmd *cobra.Command, flag string, others ...string) {
	for _, other := range others {
		cmd.MarkFlagsMutuallyExclusive(flag, other) // shells then offer the one or the other
	}
	before := cmd.PreRunE
	cmd.PreRunE = func(c *cobra.Command, args []string) error {
		if before != nil {
			if err := before(c, args); err != nil {
				return err
			}
		}
		for _, other := range others {
			if c.Flags().Changed(flag) && c.Flags().Changed(other) {
				return Usagef("--%s and --%s: have no meaning together; give one of them", flag, other)
			}
		}
		return nil
	}
}

// Alone has a command refuse all flags that it has by now beside one, but for some.
func Alone(cmd *cobra.Command, flag string, but ...string) {
	var others []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != flag && !slices.Contains(but, f.Name) {
			others = append(others, f.Name)
		}
	})
	Apart(cmd, flag, others...)
}
