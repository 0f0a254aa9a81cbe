// Package suites keeps the dependencies of Volcano's end-to-end suites in go.mod.
package suites

import (
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "volcano.sh/volcano/test/e2e/util"
)
