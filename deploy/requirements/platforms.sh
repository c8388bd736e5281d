# Sourced by the Containerfile: the options by which pip chooses the wheels of $TARGETARCH on a machine of another one.
case "$TARGETARCH" in
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
*)
    echo "no wheels are known for the platform linux/$TARGETARCH: build on such a machine" >&2
    exit 1
    ;;
esac
FOREIGN="--only-binary=:all: --platform=manylinux_2_28_$machine --platform=manylinux_2_17_$machine --platform=manylinux2014_$machine"
