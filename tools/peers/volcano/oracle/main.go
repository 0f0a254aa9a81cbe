// The oracle answers what the real Volcano scheduler decides on a small cluster.
//
// It reads one world per line (see world.go) and writes one outcome per line (see outcome.go). The
// scheduler's cache is filled from the world instead of an API server; one session with the
// actions and plugins of the given configuration runs on it. No state survives a line.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"

	"k8s.io/klog/v2"
)

// A world with thousands of pods is a line of a few megabytes.
const maxLine = 256 << 20

func main() {
	verbosity := flag.String("log", "", "verbosity of the scheduler's log on standard error")
	flag.Parse()
	quiet(*verbosity)
	// One thread: Volcano collects feasible nodes with 16 workers, and with several threads their
	// order is left to chance. Several processes use several cores.
	runtime.GOMAXPROCS(1)

	scheduler := newScheduler()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 0, 1<<20), maxLine)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for lines.Scan() {
		if err := encoder.Encode(answer(scheduler, lines.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		out.Flush()
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// answer decides one world; what fails or panics is reported as the outcome's error.
func answer(scheduler *scheduler, line []byte) (result outcome) {
	defer func() {
		if reason := recover(); reason != nil {
			result = outcome{Error: fmt.Sprintf("panic: %v", reason)}
		}
	}()
	world, err := readWorld(line)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	result, err = scheduler.decide(world)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	return result
}

func quiet(verbosity string) {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	if verbosity != "" {
		_ = flags.Set("v", verbosity)
		return
	}
	_ = flags.Set("logtostderr", "false")
	_ = flags.Set("alsologtostderr", "false")
	_ = flags.Set("stderrthreshold", "FATAL")
	klog.SetOutput(io.Discard)
}
