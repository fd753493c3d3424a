# SPDX-License-Identifier: Apache-2.0
#
# The image of workers in Python, as `./dev image python` makes it without a builder: Debian's Python, NumPy and torch, the
# package `pushpull` with its command, and runtime/examples with their data. From the root of the checkout, with PyPI in
# reach, or with `buildah build` and the same words:
#
#   docker build --file docker/python.Dockerfile --tag pushpull/pushpull-python:0.1.0 .
#
# A program of your own goes on top of it: docs/install.md. BASE: docker/Dockerfile.
ARG BASE=debian:12-slim

FROM ${BASE} AS build
WORKDIR /src
COPY . .
RUN ./dev image python && rm build/images/python.tar

FROM scratch
COPY --from=build /src/build/images/python /
ENV PATH=/usr/local/bin:/usr/bin HOME=/tmp
WORKDIR /opt/pushpull
USER 65532:65532
ENTRYPOINT ["pushpull"]
