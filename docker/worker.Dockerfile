# SPDX-License-Identifier: Apache-2.0
#
# An image of your own worker's program, with what it is linked with and nothing else. From the root of your CMake
# project, which has this repository as the folder `pushpull` and a target that links pushpull::worker
# (docs/writing-a-worker.md):
#
#   docker build --file pushpull/docker/worker.Dockerfile --build-arg PROGRAM=my_worker --tag my-registry/my-worker:1 .
#
# and in the TrainingJob: `image: my-registry/my-worker:1`, `command: [my_worker]`. Servers and coordinator have images of
# the project; all must be of one version. Data that the program reads: a folder more behind the program's name in the
# call of rootfs.sh, or a volume in spec.workers.template. BASE and PINNED: docker/Dockerfile.
ARG BASE=debian:12-slim

FROM ${BASE} AS build
WORKDIR /src
COPY pushpull/docker/packages.txt pushpull/docker/versions.txt pushpull/docker/
ARG PINNED=1
RUN apt-get update \
    && if [ "$PINNED" = 1 ]; then \
         sed -n 's/^\([^#=]*\)=\(.*\)/Package: \1\nPin: version \2\nPin-Priority: 1001\n/p' pushpull/docker/versions.txt \
           >/etc/apt/preferences.d/pinned; fi \
    && sed 's/#.*//' pushpull/docker/packages.txt \
       | DEBIAN_FRONTEND=noninteractive xargs apt-get install -y --allow-downgrades --no-install-recommends \
    && rm -rf /var/lib/apt/lists/*
COPY . .
ARG PROGRAM
RUN cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DPUSHPULL_BUILD_TRAIN=OFF \
    && cmake --build build --target "${PROGRAM}" \
    && mkdir /image && PUSHPULL_PINNED=$PINNED pushpull/docker/rootfs.sh /image "$(find build -name "${PROGRAM}" -type f -perm -u+x | head -n 1)" \
    && rm -rf build

FROM scratch
COPY --from=build /image /
ENV PATH=/usr/local/bin HOME=/tmp
USER 65532:65532
