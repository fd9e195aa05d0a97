//! What `try-packages` runs in namespaces of its own, for `sh`: of a package in an empty Debian,
//! and of an image.

/// In an empty Debian, as root: installs `/given.deb`, upgrades it to `/newer.deb`, goes back,
/// purges it, and installs it again, while three nodes run.
pub(super) const DEBIAN: &str = r##"
set -eu

fail() {
    echo "==> the package: $1" >&2
    exit 1
}

start() {
    nodes=
    for name in n0 n1 n2; do
        setpriv --reuid=ionian --regid=ionian --clear-groups --bounding-set=-all --no-new-privs \
            ionian node $name --config /etc/ionian/cluster.toml --data /var/lib/ionian \
            2>/tmp/$name.log &
        nodes="$nodes $!"
    done
    # No start takes this long if all is well.
    tries=600
    until ionian exec SET started 1 >/tmp/said 2>&1; do
        tries=$((tries - 1))
        kill -0 $nodes && [ $tries -gt 0 ] || fail "the nodes do not start: $(cat /tmp/*.log)"
        sleep 0.1
    done
}

runs() {
    kill -0 $nodes 2>/dev/null || fail "a node has stopped: $1"
    [ "$(ionian exec GET kept)" = 1 ] || fail "the nodes do not answer: $1"
}

stop() {
    kill -TERM $nodes
    for node in $nodes; do
        wait "$node" || fail "a node stops with code $?: $(cat /tmp/*.log)"
    done
}

mount -t proc proc /proc
export DEBIAN_FRONTEND=noninteractive

dpkg -i /given.deb
[ "$(stat -c '%U %G %a' /var/lib/ionian)" = 'ionian ionian 700' ] || fail 'the data directory'
[ "$(stat -c '%U %G %a' /etc/ionian)" = 'root root 755' ] || fail '/etc/ionian'
[ -z "$(find /etc/systemd -name '*ionian*')" ] || fail 'a unit is enabled'
ionian config init /etc/ionian/cluster.toml
start
ionian exec SET kept 1

dpkg -i /newer.deb
[ "$(dpkg-query -W -f '${Version}' ionian)" = 9.9.9-1 ] || fail 'it is not upgraded'
runs 'after the upgrade'
dpkg -i /given.deb
runs 'after going back'
stop
start
runs 'with the program of the package'
stop

dpkg --purge ionian
[ ! -e /usr/bin/ionian ] || fail 'the program is left'
[ -n "$(find /var/lib/ionian -name '*.wal' -type f)" ] || fail 'the data is gone'
grep -q '^ionian:' /etc/passwd || fail 'the user is gone'

dpkg -i /given.deb
start
runs 'after a purge and an install'
stop
echo '==> the package: installed, upgraded, taken back, purged, installed again'
"##;

/// Runs three nodes of an unpacked image, with a root directory that is read-only and without
/// capabilities, and kills one. Its arguments: the unpacked image, an empty folder, the program
/// that the image runs.
pub(super) const IMAGE: &str = r##"
set -eu
root=$1 work=$2 program=$3

fail() {
    echo "==> the image: $1" >&2
    exit 1
}

# Repeats a command until it works; no wait takes this long if all is well.
until_it_works() {
    tries=600
    until "$@" >"$work/said" 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "$*: $(cat "$work/said" "$work"/*.log)"
        sleep 0.1
    done
}

# Runs the program of the image with these arguments, and with this folder as its data. It takes the
# place of its shell.
contained() {
    data=$1
    shift
    exec bwrap --ro-bind "$root" / --bind "$data" /data --ro-bind "$work/config" /etc/ionian \
        --proc /proc --dev /dev --unshare-user --unshare-ipc --unshare-uts --unshare-cgroup \
        --uid 65532 --gid 65532 --cap-drop ALL --clearenv --chdir /data --die-with-parent \
        "$program" "$@"
}

command_of_a_client() {
    (contained "$work/client" exec "$@")
}

# Writes through the gateway of a node.
writes() {
    [ "$(command_of_a_client --at "$1" SET key "$2")" = OK ]
}

# The program of a node, not what contains it.
process() {
    for id in $(pgrep -f "node $1 --config"); do
        case $(readlink "/proc/$id/exe") in
        */bwrap) ;;
        *) echo "$id" ;;
        esac
    done
}

ip link set lo up
# An engine makes the folders that it mounts something at.
mkdir -p "$root/proc" "$root/dev" "$root/etc/ionian"
for folder in config client n0 n1 n2; do
    mkdir -p "$work/$folder"
done
(contained "$work/client" config init -) >"$work/config/cluster.toml"
for node in n0 n1 n2; do
    (contained "$work/$node" node $node --config /etc/ionian/cluster.toml --data /data) \
        2>"$work/$node.log" &
done
gateways=$(sed -n 's/^gateway = "\(.*\)"$/\1/p' "$work/config/cluster.toml")
[ "$(echo "$gateways" | wc -l)" = 3 ] || fail "gateways: $gateways"
for gateway in $gateways; do
    until_it_works writes "$gateway" "by $gateway"
done

for node in n0 n1 n2; do
    id=$(process $node)
    capabilities=$(sed -n 's/^Cap\(Prm\|Eff\|Bnd\|Amb\):\t//p' "/proc/$id/status" | sort -u)
    [ "$capabilities" = 0000000000000000 ] || fail "$node has capabilities: $capabilities"
    awk '$5 == "/" && $6 ~ /^ro(,|$)/ { found = 1 } END { exit !found }' "/proc/$id/mountinfo" ||
        fail "the root directory of $node can be written"
done

kill -KILL "$(process n0)"
for gateway in $(echo "$gateways" | tail -n 2); do
    until_it_works writes "$gateway" "by $gateway without n0"
done
found=$(command_of_a_client --at "$gateway" GET key)
[ "$found" = "by $gateway without n0" ] || fail "it has not kept what it said: $found"
kill -TERM "$(process n1)" "$(process n2)"
wait
echo '==> the image: three nodes served, one was killed, two went on'
"##;
