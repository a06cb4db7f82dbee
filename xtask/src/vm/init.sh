#!/bin/busybox sh
# The first process of a guest. It says on the console how each line of /steps ends, while CPUs go
# offline and come back, and then switches the machine off. console.rs reads what it says.
export PATH=/bin HOME=/tmp
# It looks for itself in /proc.
busybox mount -t proc none /proc
busybox --install -s /bin
mount -t devtmpfs none /dev
mount -t sysfs none /sys
mkdir -p /tmp /dev/shm
mount -t tmpfs none /tmp
mount -t tmpfs none /dev/shm
# Only what goes wrong is to appear between the steps.
echo 4 > /proc/sys/kernel/printk
cd /tmp
uname -rm

now() { read -r seconds rest < /proc/uptime; echo "$seconds"; }

# How often a CPU went or came. The file is empty while it is written.
turns() {
    until read -r count < /tmp/turns; do :; done
    echo "$count"
}

# Takes a CPU away or brings it back, again and again. Never those up to the number in /tmp/spared; once
# /tmp/sparing has it too, no turn from before is under way.
hotplug() {
    last=$(sed 's/.*-//' /sys/devices/system/cpu/possible)
    turns=0
    while [ ! -e /tmp/over ]; do
        # It is empty while it is written.
        read -r spared < /tmp/spared || continue
        echo "$spared" > /tmp/sparing
        file=/sys/devices/system/cpu/cpu$((spared + 1 + RANDOM % (last - spared)))/online
        read -r online < "$file"
        if echo $((1 - online)) 2> /dev/null > "$file"; then
            turns=$((turns + 1))
        fi
        echo "$turns" > /tmp/turns
        sleep 0.05
    done
}
echo 0 > /tmp/spared
echo 0 > /tmp/turns
hotplug &
hotplug=$!

while IFS='	' read -r name command; do
    echo "@@ begin $name $(now)"
    sh -c "$command" < /dev/null 2>&1
    echo "@@ end $name $? $(now) $(turns)"
done < /steps

touch /tmp/over
wait "$hotplug"
echo "@@ over $(turns)"
poweroff -f
