# docker build -t neokv . && docker run -e NEOKV_REDIS_REQUIREPASS=secret -p 7001-7003:7001-7003 -p 7100:7100 neokv
# docs/ci.md tells more.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS
ARG TARGETARCH
ENV CGO_ENABLED=0
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags='-s -w' -o /out/neokv ./cmd/neokv && \
    mkdir /out/data /out/tmp

FROM scratch
COPY --from=build /out/neokv /neokv
# serve announces its control port in /tmp, for neokv ctl in the same container.
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build --chown=65532:65532 /out/tmp /tmp
USER 65532:65532
# Where clients outside of the container's networks are sent to: the ports that -p of docker run maps. There is no
# password: serve wants one in NEOKV_REDIS_REQUIREPASS.
ENV NEOKV_REDIS_CLUSTER_ANNOUNCE=outside=127.0.0.1:{port}
VOLUME /data
EXPOSE 7001 7002 7003 7100
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --start-interval=500ms \
    CMD ["/neokv", "wait", "--timeout", "0s", "127.0.0.1:7001", "127.0.0.1:7100"]
ENTRYPOINT ["/neokv"]
CMD ["serve", "--dir", "/data", "--bind", "0.0.0.0"]
