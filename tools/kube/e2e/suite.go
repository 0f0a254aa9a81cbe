// Package e2e keeps the suite among the pinned modules; tools/conformance builds and runs it.
package e2e

import _ "k8s.io/kubernetes/test/e2e"
