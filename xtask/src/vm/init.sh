#!/bin/busybox sh
# The first process of a guest. It runs each line of /steps while CPUs go offline and come back,
# reports the results on the console, and powers the machine off. console.rs reads the reports.
export PATH=/bin HOME=/tmp
# busybox finds its own program through /proc.
busybox mount -t proc none /proc
busybox --install -s /bin
mount -t devtmpfs none /dev
mount -t sysfs none /sys
mkdir -p /tmp /dev/shm
mount -t tmpfs none /tmp
mount -t tmpfs none /dev/shm
# Only errors of the kernel shall appear between the steps.
echo 4 > /proc/sys/kernel/printk
cd /tmp
uname -rm

now() { read -r seconds rest < /proc/uptime; echo "$seconds"; }

# Prints how often a CPU went offline or online. The file is empty while it is written.
hotplugs() {
    until read -r count < /tmp/hotplugs; do :; done
    echo "$count"
}

# Takes a random CPU offline or online, in a loop. Spares the CPUs up to the number in /tmp/spared.
# When /tmp/sparing has that number too, no earlier hotplug is still running.
hotplug() {
    last=$(sed 's/.*-//' /sys/devices/system/cpu/possible)
    count=0
    while [ ! -e /tmp/over ]; do
        # The file is empty while it is written.
        read -r spared < /tmp/spared || continue
        echo "$spared" > /tmp/sparing
        file=/sys/devices/system/cpu/cpu$((spared + 1 + RANDOM % (last - spared)))/online
        read -r online < "$file"
        if echo $((1 - online)) 2> /dev/null > "$file"; then
            count=$((count + 1))
        fi
        echo "$count" > /tmp/hotplugs
        sleep 0.05
    done
}
echo 0 > /tmp/spared
echo 0 > /tmp/hotplugs
hotplug &
hotplug=$!

while IFS='	' read -r name command; do
    echo "@@ begin $name $(now)"
    sh -c "$command" < /dev/null 2>&1
    echo "@@ end $name $? $(now) $(hotplugs)"
done < /steps

touch /tmp/over
wait "$hotplug"
echo "@@ over $(hotplugs)"
poweroff -f
