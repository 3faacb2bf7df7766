# make test is what CI runs; `go test ./...` alone needs nothing but Go.

# A version that reads the Go of go.mod; changed together with it.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: test redis-server vet staticcheck darwin

test: redis-server vet staticcheck darwin
	go test -tags redisserver ./...

# The tests that compare replies with a real Redis have the tag redisserver.
redis-server:
	@.ci/redis-server

vet:
	go vet -tags redisserver ./...

staticcheck:
	go run $(STATICCHECK) -tags redisserver ./...

# macOS: tests cannot run here, but everything must compile.
darwin:
	GOOS=darwin GOARCH=arm64 go build ./...
	GOOS=darwin GOARCH=arm64 go vet -tags redisserver ./...
