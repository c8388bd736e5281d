"""What is deployed: manifests, policies' kinds and the image; `deploy.release` makes a release of them."""
