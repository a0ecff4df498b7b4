"""The data plane: /run/{owner}/{repo}/ over HTTP and WebSocket to wherever the job runs."""
