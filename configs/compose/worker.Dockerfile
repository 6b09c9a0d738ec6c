# What trials need, from the manager's own image, and an SSH server.
#   docker compose build manager worker
FROM nni-manager
USER root
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends openssh-server && rm -rf /var/lib/apt/lists/*
HEALTHCHECK NONE
ENTRYPOINT ["/bin/sh", "/configs/compose/worker.sh"]
CMD []
