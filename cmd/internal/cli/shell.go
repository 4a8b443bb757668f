package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/lockstep-ml/lockstep/core/model"
)

// Configurations is the part of a help text that lists them, with their true
// sizes, and says how to write one's own.
func Configurations() string {
	return `Configurations and their parameters:
` + model.List() + `
--config FILE.json describes another one, in sizes of elements:
  {"vocab": 256, "hidden": 32, "layers": 4, "heads": 8, "kv_heads": 4, "head_dim": 8,
   "intermediate": 64, "seq_len": 32}
and, where the defaults do not suit, "tied", "qkv_bias", "linear_bias", "norm_eps",
"rope_theta", "init_std", "init_bias", "groups": {"tensor": 4, "data": 8} (what plans may
cut: tp divides the one; dp the other, for the same bits), and
"optimizer": {"name": "adamw", "lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8,
"momentum": 0.9, "decay": 0.1, "clip": 0, "warmup": 0, "horizon": 0, "min_lr": 0}.
`
}

// Completion prints the script that has a shell complete a command's flags.
func Completion(cmd *cobra.Command, shell string, w io.Writer) error {
	switch shell {
	case "bash":
		return cmd.GenBashCompletionV2(w, true)
	case "zsh":
		return cmd.GenZshCompletion(w)
	case "fish":
		return cmd.GenFishCompletion(w, true)
	}
	return Usagef("completion %q: known are bash, zsh, fish", shell)
}

// Complete tells shells the values of the flags that every command has.
func Complete(cmd *cobra.Command) {
	CompleteFlag(cmd, "backend", Backends()...)
	CompleteFlag(cmd, "completion", "bash", "zsh", "fish")
	names := model.Names()
	err := cmd.RegisterFlagCompletionFunc("config", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return names, cobra.ShellCompDirectiveDefault // files too
	})
	must(err)
}

// CompleteFlag tells shells all values of a flag.
func CompleteFlag(cmd *cobra.Command, flag string, values ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
}

// must ends the program on a mistake in it: a flag that the command has not.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("cli: %v", err))
	}
}

// Rewritable reports whether w is a terminal whose last line can be rewritten.
func Rewritable(w io.Writer) bool { return Terminal(w) && os.Getenv("TERM") != "dumb" }

// Colors reports whether w shows colours, and nobody asked for none
// (no-color.org).
func Colors(w io.Writer) bool { return Rewritable(w) && os.Getenv("NO_COLOR") == "" }
