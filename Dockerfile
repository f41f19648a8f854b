# Everything ./fsdp needs, for systems it does not install on by itself:
#   docker build -t fsdp . && docker run --rm -it --shm-size 4g -v "$PWD":/fsdp fsdp ./fsdp test
FROM debian:12

# The packages come before the sources, so that a changed source does not install them again.
RUN apt-get update && apt-get install -y --no-install-recommends \
      ca-certificates clangd cmake g++ gdb git libcli11-dev libgtest-dev libssl-dev ninja-build \
      nlohmann-json3-dev python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

# LibTorch lies outside /fsdp, where the repository is mounted over what the image has.
WORKDIR /opt/fsdp-setup
COPY fsdp ./
COPY scripts scripts
COPY cmake cmake
RUN ./fsdp setup
ENV LIBTORCH=/opt/fsdp-setup/.venv/libtorch
RUN ln -s lib/python3.11/site-packages/torch .venv/libtorch

# The repository belongs to another user than the container's.
RUN git config --system --add safe.directory /fsdp
WORKDIR /fsdp
CMD ["./fsdp", "help"]
