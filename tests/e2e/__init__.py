"""The extender with real binaries: etcd, kube-apiserver and kube-scheduler on loopback, and `extender serve` beside them.

Needs a directory with those three programs, named by KUBE_ASSETS_DIR. Nothing of the embedded control plane enters here
but the judge: what is proven must not rest on our own stand-in for Kubernetes.
"""
