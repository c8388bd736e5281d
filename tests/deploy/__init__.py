"""The manifests of deploy/: built by kubectl, valid by schema, and granting what the service needs and nothing more."""
