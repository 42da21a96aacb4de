# Parameters: as published with filebench 1.5 (filemicro_create.f). The text is ours.
# Appends to one file until `count` flowops are done.
set $dir=/
set $count=1024
set $iosize=1m
set $nthreads=1
set $sync=false

# The published one has no mode, and ends without a result.
set mode quit firstdone

define file name=largefile,path=$dir,size=0,prealloc

define process name=writer,instances=1 {
  thread name=writer,memsize=10m,instances=$nthreads {
    flowop appendfile name=append,filename=largefile,dsync=$sync,iosize=$iosize
    flowop finishoncount name=finish,value=$count
  }
}

run
