"""What a release is made of, from the work tree: wheel, sdist, image, manifests, bills of materials, checksums."""
