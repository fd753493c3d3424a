# SPDX-License-Identifier: Apache-2.0
#
# The image of workers in Python: the package `pushpull` with its command, and runtime/examples with their data. From the root
# of the checkout, with PyPI in reach, or with `buildah build` and the same words:
#
#   docker build --file docker/python.Dockerfile --tag pushpull/pushpull-python:0.1.0 .
#   docker build --file docker/python.Dockerfile --build-arg CUDA=1 --tag pushpull/pushpull-python:0.1.0-cuda .
#
# The first is what `./dev image python` makes without a builder: Debian's Python, NumPy and torch, and nothing else. The second,
# for GPUs, is BASE with Debian's Python and PyTorch for CUDA of PyPI, as docker/torch-cuda.txt pins it; several gigabytes.
#
# A program of your own goes on top of it: docs/install.md. BASE: docker/Dockerfile.
ARG BASE=debian:12-slim
ARG CUDA=0

FROM ${BASE} AS build
WORKDIR /src
COPY . .
RUN ./dev image python && rm build/images/python.tar

FROM scratch AS cuda-0
COPY --from=build /src/build/images/python /

FROM ${BASE} AS cuda-1
COPY docker/torch-cuda.txt /tmp/
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates python3 python3-pip \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m pip install --break-system-packages --no-cache-dir -r /tmp/torch-cuda.txt
COPY --from=build /src/build/python/dist /tmp/dist
RUN python3 -m pip install --break-system-packages --no-cache-dir --no-deps /tmp/dist/*.whl && rm -r /tmp/dist /tmp/torch-cuda.txt
COPY --from=build /src/build/images/python/opt/pushpull /opt/pushpull
COPY --from=build /src/build/images/python/usr/share/datasets /usr/share/datasets

FROM cuda-${CUDA}
ENV PATH=/usr/local/bin:/usr/bin HOME=/tmp
WORKDIR /opt/pushpull
USER 65532:65532
ENTRYPOINT ["pushpull"]
