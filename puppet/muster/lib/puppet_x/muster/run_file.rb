# frozen_string_literal: true

module PuppetX
  module Muster
    # The files that muster-agent hands to a run, by the names of their environment variables.
    module RunFile
      module_function

      # The path in `variable`; a clear error when there is none, for whoever runs Puppet by hand.
      def path(variable)
        path = ENV[variable].to_s
        return path unless path.empty?

        raise Puppet::Error,
              "#{variable} is not set: muster-agent sets it for every run. " \
              'To run Puppet by hand, set it to the path of a file'
      end

      # Appends one line, with one call of the system: several processes of a run may do so at once, and no line is torn.
      # The file stays open and nothing of it is read, so that the thousandth line costs no more than the first.
      def append_line(variable, line)
        target = path(variable)
        @appended ||= {}
        @appended[target] ||= File.new(target, File::WRONLY | File::APPEND | File::CREAT, 0o600)
        @appended[target].syswrite("#{line}\n")
      rescue SystemCallError => e
        raise Puppet::Error, "cannot write #{variable} (#{target}): #{e.message}"
      end

      # Readers see the old content or the whole new one, never a part.
      def replace(variable, content)
        target = path(variable)
        temporary = "#{target}.#{Process.pid}.tmp"
        File.write(temporary, content, perm: 0o600)
        File.rename(temporary, target)
      rescue SystemCallError => e
        File.delete(temporary) if temporary && File.exist?(temporary)
        raise Puppet::Error, "cannot write #{variable} (#{target}): #{e.message}"
      end
    end
  end
end
