# make test is what to run before a commit; CI runs it, and more as far as it has time. `go test ./...` alone needs
# nothing but Go.

# A version that reads the Go of go.mod; changed together with it. .ci/systems has its version of golang.org/x/tools, so
# that it is compiled once.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

# How long make explore looks where nobody has looked before, and make fuzz runs each target.
EXPLORE = 60s
FUZZ = 3s

# Tests that take all of the machine: beside them leaders would not be heard in time. Two of their cases run at once.
ALONE = ^(TestLargeCases|TestClientsThatDoNotRead)$$

# The packages whose tests take longest come first, so that no core waits for them in the end. So do those of redis,
# which take 100 s: they run one after the other, on one core.
LONG = ./neokv/internal/sim ./neokv ./cmd/neokv
SERIAL = ./neokv/internal/redis

# Many tests wait for elections, browsers and other programs: the tests of one package more than there are cores run at
# once. Of the other packages, those whose tests wait most come first.
SIDE = $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
WAITING = ./results/report ./bench

# What the work of this build is judged by; docs/benchmarks.md says when to renew it.
BASELINE = bench/gate/baseline.json

# Compilers, linters and tests collect less garbage, which saves a tenth of their CPU or more. The program itself sets
# the same percentage where the environment has none, so what tests start behaves as it does for users.
test vet staticcheck systems: export GOGC = 400

# The C of zstd takes 30 s of CPU to compile with the flags that Go has by default, and 12 s with these. The Go is the
# same. .ci/run has them for what it runs besides, so that nothing is compiled twice.
test vet staticcheck systems counts race: export CGO_CFLAGS = -O1

# Two clients that tests use have some MB of Go, which takes 36 s of CPU to compile, and 21 s without inlining.
# .ci/run does so, too. Nothing else is of that path.
export GOFLAGS := $(GOFLAGS) -gcflags=github.com/redis/...=-l

.PHONY: test redis-server chromium vet staticcheck systems counts baseline planted race explore fuzz programs release

# vet looks at all that go test would look at again, in packages of other modules, too. It compiles one package after
# the other for a while, so systems runs beside it; staticcheck then finds packages compiled, and keeps all cores busy.
test: redis-server chromium
	+$(MAKE) --no-print-directory -j 2 vet systems
	+$(MAKE) --no-print-directory staticcheck
	.ci/in-memory go test -vet=off -tags redisserver,chromium -timeout 20m -p $(SIDE) -skip '$(ALONE)' \
		$(LONG) $(SERIAL) $(WAITING) ./...
	.ci/in-memory go test -vet=off -tags redisserver,chromium -timeout 20m -parallel 2 -run '$(ALONE)' ./cmd/neokv

# The tests that compare replies with a real Redis have the tag redisserver.
redis-server:
	@.ci/redis-server

# The tests that look at reports in a browser have the tag chromium.
chromium:
	@.ci/chromium

vet:
	go vet -tags redisserver,chromium ./...

staticcheck:
	go run $(STATICCHECK) -tags redisserver,chromium ./...

# macOS and Windows: tests cannot run here, but everything must compile.
systems:
	cd .ci/systems && go run . ../..

# Fails if operations cost more syncs, entries or bytes of the log than those of the baseline. It needs no git history.
counts:
	go build -buildvcs=false -o bin/ ./cmd/neokv
	bin/neokv check --baseline $(BASELINE) --only counts

# A new baseline, of a commit alone. git must not see other files either.
baseline:
	@test -z "$$(git status --porcelain)" || { echo "make baseline: commit or stash first: git status" >&2; exit 1; }
	go build -o bin/ ./cmd/neokv
	bin/neokv check --renew $(BASELINE)

# Trials of the gate: builds with a mistake that is planted in the source, which it must find. Each trial is appended
# to the committed file at once. make planted KINDS=more-syncs,same TRIALS=5 BUDGET=1m
KINDS =
TRIALS = 1
BUDGET = 3m
planted:
	go test ./bench/gate/planted -count=1 -v -timeout 0 -run ^TestPlanted$$ -gate.planted=$(TRIALS) \
		-gate.kinds=$(KINDS) -gate.budget=$(BUDGET)
	go test ./docs -update

# All tests under the race detector. CI runs a sixth of them: make race SIXTHS=0
SIXTHS = 0 1 2 3 4 5
race: redis-server
	ALONE='$(ALONE)' LONG='$(LONG)' .ci/race $(SIXTHS)

# Fresh seeds, which are printed, and all of what make test draws a part of.
explore: redis-server
	go test ./neokv/internal/sim -count=1 -v -run TestExplore -sim.explore=$(EXPLORE)
	go test ./cmd/neokv -count=1 -v -timeout 1h -run TestLargeCalls -large.time=$(EXPLORE)
	go test -tags redisserver ./neokv -count=1 -v -run TestRepliesOfTheCluster -compare.seed=0
	go test ./neokv -count=1 -timeout 1h -run TestLostParts -lost.all
	go test -tags redisserver ./neokv/internal/redis -count=1 -v -run TestExploreReplies -compare.time=$(EXPLORE)

fuzz:
	.ci/fuzz $(FUZZ)

# Real clients and libraries in Go, JavaScript and Python, unmodified. It installs packages of npm and of Debian. With
# FOR=60s queues, subscribers and caches work for a minute at each port, while stores are killed and regions split.
programs:
	go build -o bin/ ./cmd/neokv
	.ci/programs/run -neokv ../../bin/neokv $(if $(FOR),-for $(FOR))

# Programs for six systems, with checksums and bills of materials, in dist/; the same bytes wherever it runs.
release:
	.ci/release
