module hekla/tools/siftool

go 1.26

tool github.com/sylabs/sif/v2/cmd/siftool

require (
	github.com/google/go-containerregistry v0.20.6 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/cobra v1.9.1 // indirect
	github.com/spf13/pflag v1.0.7 // indirect
	github.com/sylabs/sif/v2 v2.22.0 // indirect
)
