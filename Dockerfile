# docker build -t polyak . && docker run --rm -v "$PWD:/work" polyak demo
# The processor's build of torch; for an NVIDIA GPU: --build-arg TORCH_INDEX=https://pypi.org/simple, and run --gpus all.
FROM python:3.12-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=extra,zoo,video,onnx
WORKDIR /src
COPY constraints.txt ./
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "$(grep '^torch==' constraints.txt)"
COPY pyproject.toml README.md LICENSE ./
COPY polyak polyak
RUN pip install --no-cache-dir -c constraints.txt ".[$EXTRAS]" && rm -rf /src/* && useradd --create-home agent
USER agent
WORKDIR /work
ENTRYPOINT ["polyak"]
CMD ["--help"]
