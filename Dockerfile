# The daemon as a service. Everything it keeps is in /data; its jobs' keeper runs beside it in this container.
#   docker build -t nni-manager .
#   docker run -d --init -e NNI_MANAGER_TOKEN=… -p 127.0.0.1:8080:8080 -p 8081:8081 -v nni-data:/data nni-manager
# Another base with Python 3.11 or newer, and Debian's packages for the worker: --build-arg BASE=…

ARG BASE=python:3.12-slim

FROM ${BASE} AS build
WORKDIR /source
# The versions that were tested, to the byte; first, so that a change of the sources downloads none of them again.
COPY requirements/image.txt requirements/image.txt
RUN python -m venv /opt/nni-manager \
    && /opt/nni-manager/bin/pip install --no-cache-dir --disable-pip-version-check \
       --require-hashes -r requirements/image.txt
COPY pyproject.toml LICENSE ./
COPY docs/pypi.md docs/pypi.md
COPY nni_manager nni_manager
COPY trial_runner trial_runner
RUN /opt/nni-manager/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation . \
    && /opt/nni-manager/bin/nni-manager runner build --output /opt/nni-manager/runner.pyz

FROM ${BASE} AS manager
COPY --from=build /opt/nni-manager /opt/nni-manager
RUN useradd --uid 10001 --create-home manager \
    && install -d -m 0700 -o manager -g manager /data
ENV PATH=/opt/nni-manager/bin:$PATH \
    NNI_MANAGER_DATA=/data \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/manager
VOLUME /data
# 8080: page and API; 8081: where trial runners report.
EXPOSE 8080 8081
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/readyz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["nni-manager"]
# Others can reach this address, so NNI_MANAGER_TOKEN must be set.
CMD ["serve", "--host", "0.0.0.0"]

# The second machine of docker-compose.yml: an SSH server, and what the example's trials import. Only the keeper that the
# manager sends runs there, as the user `worker`. The image has no host key: docker-compose.yml mounts one.
FROM ${BASE} AS worker
RUN apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends openssh-server \
    && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \
    && useradd --uid 10002 --create-home --shell /bin/sh worker
COPY --from=build /opt/nni-manager /opt/nni-manager
ENTRYPOINT ["/bin/sh", "/configs/compose/worker.sh"]

# What is built where nothing else is asked for.
FROM manager
