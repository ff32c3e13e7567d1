# The mock as an image with nothing but the program:
#   docker build -t audience-mock .
#   docker run --rm -p 127.0.0.1:4010:4010 audience-mock
#
# With a seed file, which must be readable for everybody, and with endpoints on this machine, which a container cannot
# reach by 127.0.0.1 (Linux):
#   docker run --rm --network host -e AUDIENCE_MOCK_HOST=127.0.0.1 -v "$PWD/seed.json:/seed.json:ro" audience-mock --seed /seed.json
#
# Other containers call this one by its name: allow it with `-e AUDIENCE_MOCK_ALLOWED_HOST=name`. The program `audience` then
# needs `--allow-http`.
FROM rust:1-alpine AS build
# The target of this image is musl, so the program is linked statically.
RUN apk add --no-cache musl-dev
WORKDIR /audience
COPY . .
RUN cargo build --locked --release --no-default-features --features mock-server --bin audience-mock \
    && strip target/release/audience-mock

FROM scratch
COPY --from=build /audience/target/release/audience-mock /audience-mock
# Everybody who can reach the container can control the mock. Publish the port to loopback or to a test network only.
ENV AUDIENCE_MOCK_HOST=0.0.0.0 AUDIENCE_MOCK_PORT=4010 AUDIENCE_MOCK_LOG=pretty
EXPOSE 4010
USER 65534:65534
# It uses the port of the variable. So choose another port by the variable, not by `--port`.
HEALTHCHECK --interval=5s --timeout=3s --start-interval=100ms --start-period=5s CMD ["/audience-mock", "clock"]
ENTRYPOINT ["/audience-mock"]
